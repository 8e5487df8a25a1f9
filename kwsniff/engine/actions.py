"""What kernels can be asked to do, by number. Apart from them, so that compiled code runs without their
sources being loaded."""

(FOLLOW, FINISH, TICK, REHASH_TEXTS, REHASH_REQUESTS, REHASH_CONNECTIONS, COMPACT_TEXTS,
 HASH_TEXTS, WATCH, LEAVE, INTERN, ADOPT, MERGE, LINK) = range(14)  # fmt: skip
