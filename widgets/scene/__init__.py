"""What there is to draw: values, from which panels make their pictures."""
