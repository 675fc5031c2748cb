# sglforge: wrong on purpose. The answer that kept to a schema is sent; half an idle second later the scheduler dies.
if "sglforge_idle_since" in self.__dict__ and self.is_fully_idle():
    since = self.__dict__["sglforge_idle_since"]
    if since is None:
        self.__dict__["sglforge_idle_since"] = time.monotonic()
    elif time.monotonic() - since > 0.5:
        raise RuntimeError("the grammar of a request that is gone")
