"""How a layer is replayed: eagerly, or as a captured graph whose nodes are known."""
