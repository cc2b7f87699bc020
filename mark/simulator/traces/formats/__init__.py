"""Traces as people have them: where the bytes come from, which format they are, and what their rows say.

`sources` finds files, objects of S3 and what they unpack to; `content` cuts them into blocks of lines; `detect`
knows a format by its first lines; `tables`, `logs`, `cloudwatch` and `prometheus` read one format each into
`rows`; `where` chooses among requests and series; `bins` turns the rows of all files into equal bins. A log is
read in blocks and only its instants are kept, so it may be larger than memory. Every error is one line with the
file, the line where there is one, and what to do. docs/traces.md shows an example of each format.
"""
