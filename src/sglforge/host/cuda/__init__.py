"""CUDA toolkits of this machine: where they are, what they lack, which one a build takes."""
