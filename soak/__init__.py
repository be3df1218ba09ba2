"""The soak: writers, followers and everything that cleans up behind them, for half an hour."""
