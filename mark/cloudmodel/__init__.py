"""The rules of the cloud that its replay, its emulation and its observer follow."""
