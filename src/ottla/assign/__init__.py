"""The assignors, and how consumers write subscriptions and assignments."""
