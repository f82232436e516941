"""Commands about traces."""
