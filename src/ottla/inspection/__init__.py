"""Looking at log folders from outside: what lies in them, what is damaged, and mending it. Behind `ottla log`."""
