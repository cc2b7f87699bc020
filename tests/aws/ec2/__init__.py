"""EC2 as the Cloud port."""
