"""An answer as it grows, in whatever dialect it comes."""
