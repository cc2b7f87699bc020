"""The commands: flags and help, one module a group; what they do stands in the modules beside this package."""
