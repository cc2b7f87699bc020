"""Background work of the acting controller; its failures stop no tick."""
