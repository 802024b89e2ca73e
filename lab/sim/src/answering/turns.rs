//! Link that flows share by turns, weighted by bytes (deficit round robin; Shreedhar and Varghese, SIGCOMM 1995).
//! Connections on a shared link also get about equal shares of it. First come, first served would let a few large
//! replies delay many small ones.
//!
//! The send time of a reply depends on later replies, so the end of each sending is an event.

use std::collections::VecDeque;

/// Bytes that a flow may send in its turn.
const QUANTUM: u64 = 64 << 10;

/// Queues for a link, by flow. The caller chooses the numbers of replies.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    queues: Vec<VecDeque<(u32, u32)>>,
    waiting: usize,
    deficit: Vec<u64>,
    turn: usize,
    sending: Option<u32>,
}

impl Turns {
    /// Creates an idle link.
    pub(super) fn new(flows: usize) -> Self {
        Self {
            queues: vec![VecDeque::new(); flows],
            waiting: 0,
            deficit: vec![0; flows],
            turn: 0,
            sending: None,
        }
    }

    /// Queues a reply of `bytes` for its flow. If the link was idle, sending starts at once, and the result is the
    /// number of bytes.
    pub(super) fn push(&mut self, flow: usize, answer: u32, bytes: u32) -> Option<u32> {
        if self.sending.is_none() {
            self.sending = Some(answer);
            return Some(bytes);
        }
        if self.queues[flow].is_empty() && flow != self.turn {
            self.deficit[flow] = 0;
        }
        self.queues[flow].push_back((answer, bytes));
        self.waiting += 1;
        None
    }

    /// Completes the current sending. Returns the sent reply, and the size in bytes of the next one.
    pub(super) fn sent(&mut self) -> (u32, Option<u32>) {
        let done = self.sending.take().expect("the link was busy");
        if self.waiting == 0 {
            return (done, None);
        }
        loop {
            let flow = self.turn;
            match self.queues[flow].front() {
                Some((answer, bytes)) if u64::from(*bytes) <= self.deficit[flow] => {
                    let (answer, bytes) = (*answer, *bytes);
                    self.deficit[flow] -= u64::from(bytes);
                    self.queues[flow].pop_front();
                    self.waiting -= 1;
                    self.sending = Some(answer);
                    return (done, Some(bytes));
                }
                front => {
                    if front.is_none() {
                        self.deficit[flow] = 0;
                    }
                    self.turn = (flow + 1) % self.queues.len();
                    if !self.queues[self.turn].is_empty() {
                        self.deficit[self.turn] += QUANTUM;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_share_a_busy_link_equally_by_bytes() {
        let mut link = Turns::new(3);
        let (large, small) = (60_000, 4_000);
        assert_eq!(link.push(0, 0, large), Some(large));
        let mut sent = [0u64; 3];
        // Flow 0 has large replies and flow 1 small ones, both with a backlog. Flow 2 starts later.
        for i in 0..16 {
            assert_eq!(link.push(0, i, large), None);
            assert_eq!(link.push(1, 100 + i, small), None);
        }
        for step in 0..20_000 {
            let (answer, next) = link.sent();
            let flow = (answer / 100) as usize;
            let bytes = [large, small, large][flow];
            sent[flow] += u64::from(bytes);
            link.push(flow, answer, bytes);
            if step == 10_000 {
                link.push(2, 200, large);
            }
            assert!(next.is_some());
        }
        let share = sent[0] as f64 / sent[1] as f64;
        assert!((0.85..1.2).contains(&share), "{share}");
        assert!(sent[2] > 0);
    }

    #[test]
    fn idle_link_sends_at_once_and_in_order() {
        let mut link = Turns::new(2);
        assert_eq!(link.push(1, 7, 10), Some(10));
        assert_eq!(link.push(1, 8, 20), None);
        assert_eq!(link.sent(), (7, Some(20)));
        assert_eq!(link.sent(), (8, None));
        assert_eq!(link.push(0, 9, 30), Some(30));
    }
}
