"""Assignment of rows to columns at the least total cost, by shortest augmenting paths.

The method is Jonker and Volgenant's in the rectangular form of Crouse (IEEE TAES 52(4), 2016), which SciPy's
`linear_sum_assignment` names as its own. Rows join one after the other; each takes the cheapest alternating path
to a free column, by Dijkstra over reduced costs. O(rows^2 x columns).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOBODY = -1
"""No row or no column: a constant, because compiled code has no optional integers."""


class Assignment(NamedTuple):
    """The result in `column_of` and `row_of`, and room to work in, kept from one call to the next."""

    #: shape (rows,), the column of each row
    column_of: Ints
    #: shape (columns,), the row of each column
    row_of: Ints
    row_price: Floats
    column_price: Floats
    #: shape (columns,), length of the cheapest path to each column, and the row before it
    path: Floats
    before: Ints
    #: shape (columns,), columns that the search has not reached yet, and those that it has
    left: Ints
    reached: Ints


def assignment_room(ints: Ints, floats: Floats) -> Assignment:
    """Room in this memory. ints: shape (5, largest), floats: shape (3, largest)."""
    return Assignment(ints[0], ints[1], floats[0], floats[1], floats[2], ints[2], ints[3], ints[4])


def assign(costs: Floats, rows: int, columns: int, room: Assignment) -> None:
    """Give each row a column of its own. costs: at least shape (rows, columns), finite; rows <= columns."""
    room.row_price[:rows] = 0.0
    room.column_price[:columns] = 0.0
    room.row_of[:columns] = NOBODY
    for row in range(rows):
        end = _cheapest_path(costs, row, columns, room)
        while True:
            last = room.before[end]
            room.row_of[end] = last
            if last == row:
                room.column_of[row] = end
                break
            room.column_of[last], end = end, room.column_of[last]


def _cheapest_path(costs: Floats, start: int, columns: int, room: Assignment) -> int:
    """The free column at the end of the cheapest path from `start`; prices are moved along."""
    # taken out of the tuple once: compiled code counts references at each look into it
    path, left, reached, before, row_of = room.path, room.left, room.reached, room.before, room.row_of
    row_price, column_price = room.row_price, room.column_price
    for column in range(columns):
        path[column] = np.inf
        left[column] = column
    lefts, reaches, row, length = columns, 0, start, 0.0
    while True:
        least, place = np.inf, 0
        price = length - row_price[row]
        for k in range(lefts):
            column = left[k]
            through = price + costs[row, column] - column_price[column]
            if through < path[column]:
                path[column] = through
                before[column] = row
            if path[column] < least or (path[column] == least and row_of[column] == NOBODY):
                least, place = path[column], k
        length, column = least, left[place]
        if row_of[column] == NOBODY:
            break
        lefts -= 1
        left[place] = left[lefts]
        reached[reaches] = column
        reaches += 1
        row = row_of[column]
    row_price[start] += length
    for k in range(reaches):
        gain = length - path[reached[k]]
        column_price[reached[k]] -= gain
        row_price[row_of[reached[k]]] += gain
    return int(column)
