"""What several test folders share: services, raw clients, a look at sockets and the kernel log."""
