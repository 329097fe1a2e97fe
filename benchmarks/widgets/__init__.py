"""What a person in front of the widget waits for."""
