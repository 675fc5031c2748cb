"""Keep a build step to itself: no network, no write outside its folder, no process that outlives it; and measure it.

`step` is the side that starts a step. The other modules run in a Python of their own that becomes the step
(`launcher`); they import the standard library only, and little of it: every hook of a build waits for them.
"""
