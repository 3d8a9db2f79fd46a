//! What may befall a log, in any order: nothing of it is damage, and no record is lost.

use super::*;

#[derive(Clone, Copy, Debug)]
enum Fate {
    Vote,
    /// A snapshot that cannot be written: another segment is begun, and those before it stay.
    Rotate,
    Snapshot,
    /// The process is started again, and writes its life.
    Restart,
    /// It is killed before it does.
    RestartInVain,
    /// It is killed in the middle of a commit.
    TearEnd,
    /// It is killed when it has written so many bytes of another segment.
    TearBeginning(usize),
}

const FATES: [Fate; 9] = [
    Fate::Vote,
    Fate::Rotate,
    Fate::Snapshot,
    Fate::Restart,
    Fate::RestartInVain,
    Fate::TearEnd,
    Fate::TearBeginning(0),
    Fate::TearBeginning(30),
    Fate::TearBeginning(48),
];

/// A log, and what must be remembered of it.
struct Log {
    path: PathBuf,
    storage: Storage,
    records: Vec<Record>,
    votes: u64,
}

impl Log {
    async fn begin() -> Log {
        let (path, storage) = begun("fates").await;
        let mut log = Log { path, storage, records: vec![life()], votes: 0 };
        log.vote().await;
        log
    }

    async fn befall(mut self, fate: Fate) -> Log {
        match fate {
            Fate::Vote => self.vote().await,
            Fate::Rotate => {
                let writing = self.path.join(format!("writing-{}", self.storage.number + 1));
                symlink("/dev/full", writing).unwrap();
                let memory = self.rotate();
                assert!(!write_parts(&mut self.storage).await);
                self.finish().await;
                self.records.extend(memory);
            }
            Fate::Snapshot => {
                self.records = self.rotate().to_vec();
                assert!(write_parts(&mut self.storage).await);
            }
            Fate::Restart => {
                self = self.start(|_| ());
                self.put(life_with(self.votes)).await;
            }
            Fate::RestartInVain => self = self.start(|_| ()),
            Fate::TearEnd => {
                self = self.start(|file| file.extend([200, 0, 0, 0, 1, 2, 3, 4, 5]));
            }
            Fate::TearBeginning(length) => {
                self.rotate();
                self.finish().await;
                self = self.start(|file| file.truncate(length));
            }
        }
        self
    }

    async fn vote(&mut self) {
        self.votes += 1;
        self.put(promise(self.votes)).await;
    }

    async fn put(&mut self, record: Record) {
        self.records.push(record.clone());
        put(&mut self.storage, record).await;
    }

    /// Begins a segment; returns what it begins with.
    fn rotate(&mut self) -> [Record; 2] {
        let memory = [life_with(self.votes - 1), promise(self.votes)];
        self.storage.begin_snapshot(position(), &memory);
        memory
    }

    /// Waits until all of it is on disk.
    async fn finish(&mut self) {
        let ticket = self.storage.seal();
        while !self.storage.is_safe(ticket) {
            poll_fn(|context| self.storage.poll(context)).await.unwrap();
        }
    }

    /// Ends the process, does `harm` to its newest segment and starts it again.
    fn start(self, harm: impl FnOnce(&mut Vec<u8>)) -> Log {
        let Log { path, storage, records, votes } = self;
        let newest = path.join(format!("log-{}", storage.number));
        drop(storage);
        // A job for a snapshot may outlive it, and keeps the folder until it is done.
        fs::File::open(path.join("lock")).unwrap().lock().unwrap();
        let mut file = fs::read(&newest).unwrap();
        harm(&mut file);
        fs::write(&newest, file).unwrap();
        let (storage, memory) = Storage::open(&path).unwrap();
        assert_eq!(memory.expect("nothing is damaged").records, records);
        Log { path, storage, records, votes }
    }
}

#[tokio::test]
async fn nothing_that_may_befall_a_log_is_damage() {
    for first in FATES {
        for second in FATES {
            let mut log = Log::begin().await;
            for fate in [first, second, Fate::Rotate, Fate::Restart, Fate::Vote, Fate::RestartInVain] {
                log = log.befall(fate).await;
            }
            fs::remove_dir_all(log.path).unwrap();
        }
    }
}
