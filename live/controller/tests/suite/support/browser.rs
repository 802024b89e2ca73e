//! Headless browser, controlled over its debugging pipe with JSON messages that end with a zero byte.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for a message of the browser.
const SILENT_MAX: Duration = Duration::from_secs(120);

/// Browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    last_id: u64,
    _dir: tempfile::TempDir,
}

/// Returns the path of the browser on this machine, if it is installed.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let all = std::env::split_paths(&path).flat_map(|dir| names.map(|n| dir.join(n)));
    all.into_iter().find(|p| p.is_file())
}

impl Browser {
    /// Starts the browser; `None` if this machine has none.
    pub fn open(url: &str) -> Option<Self> {
        let program = program()?;
        let dir = tempfile::tempdir().unwrap();
        let (input, output) = (dir.path().join("in"), dir.path().join("out"));
        let made = Command::new("mkfifo").arg(&input).arg(&output).status();
        assert!(made.unwrap().success());
        let child = Command::new("sh")
            .arg("-c")
            .arg("exec \"$@\" 3<\"$FROM_US\" 4>\"$TO_US\"")
            .arg("sh")
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
            ])
            .args([
                "--ignore-certificate-errors",
                "--hide-scrollbars",
                "--window-size=1360,1900",
            ])
            .arg(format!(
                "--user-data-dir={}",
                dir.path().join("profile").display()
            ))
            .arg("about:blank")
            .env("FROM_US", &input)
            .env("TO_US", &output)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Open both ends in the same order as the shell does: each open waits for the other end.
        let to = OpenOptions::new().write(true).open(&input).unwrap();
        let output = File::open(&output).unwrap();
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice(&message) else {
                    return;
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            to,
            from,
            session: None,
            last_id: 0,
            _dir: dir,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(String::from);
        browser.call("Page.enable", json!({}));
        browser.call("Page.navigate", json!({ "url": url }));
        browser.wait("document.readyState === 'complete' && location.protocol === 'https:'");
        Some(browser)
    }

    /// Sends a command of the debugging protocol. Returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.try_call(method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Sends a command. Returns the whole answer, which may be an error.
    fn try_call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.clone().into();
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        loop {
            let answer = self
                .from
                .recv_timeout(SILENT_MAX)
                .expect("the browser answers");
            if answer["id"] == self.last_id {
                return answer;
            }
        }
    }

    /// Evaluates an expression on the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let until = Instant::now() + SILENT_MAX;
        loop {
            let params =
                json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
            let answer = self.try_call("Runtime.evaluate", params);
            // During a navigation the page has no values.
            let on_the_way = answer["error"]["message"]
                .as_str()
                .is_some_and(|why| why.contains("navigated"));
            if on_the_way && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            assert!(answer["error"].is_null(), "{expression}: {answer}");
            let result = &answer["result"];
            assert!(
                result["exceptionDetails"].is_null(),
                "{expression}: {answer}"
            );
            return result["result"]["value"].clone();
        }
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) {
        let until = Instant::now() + SILENT_MAX;
        while self.eval(expression) != true {
            let text = "document.body ? document.body.innerText.slice(0, 600) : ''";
            assert!(
                Instant::now() < until,
                "never: {expression}\n{}",
                self.eval(text)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns all text of the page.
    pub fn text(&mut self) -> String {
        self.eval("document.body.innerText")
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let message = json!({ "id": 0, "method": "Browser.close" });
        let _ = self.to.write_all(format!("{message}\0").as_bytes());
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
