"""`mark profile --on`: a model measured on instances that are rented for it."""
