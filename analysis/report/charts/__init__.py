"""Charts of runs and traces: from their documents to charts with the tables behind them."""
