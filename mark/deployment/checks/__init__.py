"""`mark doctor`: what an account lacks."""
