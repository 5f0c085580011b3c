"""Forecast what reading equality deletes costs, and turn them into position deletes."""
