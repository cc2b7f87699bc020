"""IAM: what each role may do, made from the calls that the code makes."""
