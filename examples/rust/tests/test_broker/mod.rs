//! The test broker of ottla as a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

pub struct TestBroker {
    process: Child,
    pub bootstrap_servers: String,
}

impl TestBroker {
    pub fn start(options: &[&str]) -> Self {
        let mut process = Command::new("ottla")
            .arg("test-broker")
            .args(options)
            .stdin(Stdio::piped()) // closed when the tests end, and with it the broker
            .stdout(Stdio::piped())
            .spawn()
            .expect("ottla is installed: pip install ottla");
        let mut address = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut address).unwrap();
        assert!(!address.is_empty(), "the test broker did not start");
        Self { process, bootstrap_servers: address.trim().to_string() }
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}
