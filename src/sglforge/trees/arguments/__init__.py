"""The options of an SGLang server, read off its tree without importing torch."""
