"""What happens inside a step."""
