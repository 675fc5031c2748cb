"""What can be seen of a running server from outside: processes, libraries, kernels it compiles, memory, identity."""
