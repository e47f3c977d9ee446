"""What every executor must do, driven through the page in the place of a transport."""
