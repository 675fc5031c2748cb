"""Files that people write: recipes, targets, stacks, profiles, locks."""
