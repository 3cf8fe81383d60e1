"""What the report of a training run says: its tasks over the checkpoints, and the items behind them."""
