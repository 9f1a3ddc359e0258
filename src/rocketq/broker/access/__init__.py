"""Requests about accounts, users and policies, and the files behind them."""
