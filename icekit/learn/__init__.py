"""Learn table maintenance: the lab's sick tables, and lessons on them."""
