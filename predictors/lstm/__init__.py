"""LSTMs: the quantile LSTM, MArk's vanilla one, their training and their weights."""
