"""The words of the house: frozen values, their units, and the errors. Standard library only."""
