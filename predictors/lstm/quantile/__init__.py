"""The quantile LSTM: its features, its training, its cache, and the expert that it becomes."""
