"""What can be rented, and how much of it: instance types, Lambda, quotas, and the times that AWS takes."""
