"""Scripts that look after the repository; the Makefile names them. Nothing here is shipped."""
