"""Five models as users write them, in numpy alone: `mark demo` copies these files, measures and serves them."""
