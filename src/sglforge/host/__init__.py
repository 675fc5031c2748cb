"""What this machine is: facts, their judgement, the toolchain, pip's configuration."""
