"""Make and judge the tiny models that prove a server without a GPU."""
