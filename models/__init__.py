"""Small real models to serve, each with its weights, its card (card.md) and its profile (profile.json).

`mark.models.digits:Digits`, `mark.models.lstm_lm:LanguageModel` and `mark.models.transformer:Polarity` are called
without arguments and give what `mark.ports.PythonModel` asks for. torch is imported when a model is made, not
before.
"""
