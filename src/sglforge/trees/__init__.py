"""What a source tree says about itself, read without importing it."""
