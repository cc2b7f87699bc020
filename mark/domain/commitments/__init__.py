"""Savings Plans and Reserved Instances that an account has, and what they cover."""
