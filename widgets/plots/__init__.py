"""Pictures of what there is to draw, as plain values that plotly reads."""
