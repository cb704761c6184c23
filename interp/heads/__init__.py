"""What single attention heads do: what they look at, what they copy, whom they read from."""
