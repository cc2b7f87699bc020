"""`mark advise`: what each change of the settings would have saved."""
