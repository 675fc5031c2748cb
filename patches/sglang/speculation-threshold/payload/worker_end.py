# sglforge: the target's own graphs are there by now.
self._init_plain_decode_graphs()
