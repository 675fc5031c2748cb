"""What runs in the process of its own that asks a tree's parser: standard library only, no other part of sglforge."""
