// What a person can do to one task, as its state and their role allow. The coordinator decides; a button that is
// there may still be refused, and the refusal's words are shown.

import { get, may, post } from "./api.js";
import { alert, dialog, field, news } from "./dialogs.js";
import { h } from "./dom.js";
import { line } from "./format.js";
import { ended, undelivered } from "./parts.js";

/** Highest and lowest priority. */
export const PRIORITY_MAX = 1000;

const on = (task, verb) => `/v1/tasks/${task.id}/${verb}`;
const title = (task) => line(task.spec.title || "this task", 80);

/** Asks, does, tells. `done` is called once it is done. */
async function act({ question, request, told, done }) {
  const fields = question ? await dialog(question) : {};
  if (fields === null) return;
  try {
    const answer = await request(fields);
    news(told);
    await done?.(answer);
  } catch (error) {
    alert(error.message);
  }
}

const ACTS = [
  {
    name: "Answer",
    primary: true,
    fits: (task) => task.state === "blocked" && !undelivered(task) && ["person", "provider", "outage", "budget", "worker_fault"].includes(task.blocked_why),
    of: (task) => ({
      question: {
        title: task.blocked_why === "person" ? "Answer" : "Let it go on",
        body: [
          task.message && h("blockquote", { class: "text", dir: "auto" }, task.message),
          task.blocked_why !== "worker_fault" && field("Your answer", "text", {
            rows: 5,
            required: task.blocked_why === "person",
            hint: "The run goes on where it stood, with question and answer in its prompt.",
          }),
        ],
        act: task.blocked_why === "worker_fault" ? "Go on" : "Answer",
      },
      request: ({ text = "" }) => post(on(task, "answer"), { text }),
      told: `Answered: ${title(task)}`,
    }),
  },
  {
    name: "Complete unverified",
    fits: (task) => task.state === "blocked" && task.blocked_why === "person" && task.unverified,
    of: (task) => ({
      question: {
        title: "Complete it as unverified",
        body: h("blockquote", { class: "text", dir: "auto" }, task.unverified),
        act: "Complete",
      },
      request: () => post(on(task, "answer"), { text: "accept" }),
      told: `Completed as unverified: ${title(task)}`,
    }),
  },
  {
    name: "Accept",
    primary: true,
    ofRun: true,
    fits: (task) => task.last_run && (undelivered(task) || task.state === "completed"),
    of: (task) => ({
      question: {
        title: "Accept the result",
        body: field("Comment", "comment", { rows: 3, hint: undelivered(task) ? "Says that the delivery is settled by hand." : "Optional; it stands in the log." }),
        act: "Accept",
      },
      request: ({ comment }) => post(`/v1/runs/${task.last_run}/accept`, { comment }),
      told: `Accepted: ${title(task)}`,
    }),
  },
  {
    name: "Reject",
    ofRun: true,
    fits: (task) => task.last_run && (undelivered(task) || task.state === "completed"),
    of: (task) => ({
      question: {
        title: "Reject the result",
        body: field("What is wrong", "comment", { rows: 5, required: true, hint: "A new run goes on from the result and is told this." }),
        act: "Reject",
      },
      request: ({ comment }) => post(`/v1/runs/${task.last_run}/reject`, { comment }),
      told: `Rejected; a new run goes on: ${title(task)}`,
    }),
  },
  {
    name: "Tell",
    ofRun: true,
    fits: (task) => task.state === "running" && task.run,
    of: (task) => ({
      question: {
        title: "Tell the run",
        body: field("Your words", "text", { rows: 5, required: true, hint: "The model hears them before its next turn." }),
        act: "Tell",
      },
      request: ({ text }) => post(`/v1/runs/${task.run}/tell`, { text }),
      told: `Told: ${title(task)}`,
    }),
  },
  {
    name: "Pause",
    fits: (task) => !ended(task) && task.state !== "blocked",
    of: (task) => ({ request: () => post(on(task, "pause")), told: `Paused${task.state === "running" ? " at the end of its turn" : ""}: ${title(task)}` }),
  },
  {
    name: "Unpause",
    primary: true,
    fits: (task) => task.state === "blocked" && task.blocked_why === "paused",
    of: (task) => ({ request: () => post(on(task, "unpause")), told: `Goes on: ${title(task)}` }),
  },
  {
    name: "Retry",
    fits: (task) => ["discarded", "cancelled", "completed", "retryable"].includes(task.state) && !task.forked_from,
    of: (task) => ({
      question: {
        title: task.state === "retryable" ? "Try it again now" : "Run it again from the start",
        body: [h("p", {}, title(task)), field("Reason", "reason", { hint: "Optional; it stands in the log." })],
        act: "Retry",
      },
      request: ({ reason }) => post(on(task, "retry"), { reason }),
      told: `Goes into the backlog again: ${title(task)}`,
    }),
  },
  {
    // A fork has no start of its own to be retried from: it goes on from where its run got to.
    name: "Resume",
    ofRun: true,
    fits: (task) => task.forked_from && task.last_run && ["discarded", "cancelled"].includes(task.state),
    of: (task) => ({
      question: {
        title: "Go on from its last turn that ended",
        body: [h("p", {}, title(task)), field("Hint for the model", "hint", { rows: 4, hint: "Optional. It is a fork, so it cannot run again from the start; its run's page resumes it from any turn." })],
        act: "Resume",
      },
      request: ({ hint }) => post(`/v1/runs/${task.last_run}/resume`, { hint: hint.trim() || undefined }),
      told: `Goes on as a new run: ${title(task)}`,
    }),
  },
  {
    name: "Priority",
    fits: (task) => !ended(task),
    of: (task) => ({
      question: {
        title: "Another priority",
        body: priorityField(task.spec.priority ?? 0),
        act: "Set",
      },
      request: async ({ priority }) => {
        const answer = await post("/v1/tasks/bulk", { act: { reprioritize: Number(priority) }, tasks: [task.id] });
        if (answer.tasks[0]?.refused) throw new Error(answer.tasks[0].refused);
        return answer;
      },
      told: `Has another priority: ${title(task)}`,
    }),
  },
  {
    name: "Cancel",
    danger: true,
    fits: (task) => !ended(task),
    of: (task) => ({
      question: {
        title: "Cancel this task",
        body: [
          h("p", {}, title(task)),
          task.state === "running" && h("p", {}, "It runs now. Its run ends, and what it did stays in the log."),
          field("Reason", "reason", { hint: "Optional; it stands in the log." }),
        ],
        act: "Cancel the task",
        danger: true,
        close: "Keep it",
      },
      request: ({ reason }) => post(on(task, "cancel"), { reason }),
      told: `Cancelled: ${title(task)}`,
    }),
  },
];

export function priorityField(value = 0) {
  return field("Priority", "priority", {
    type: "number",
    min: -PRIORITY_MAX,
    max: PRIORITY_MAX,
    step: 1,
    required: true,
    value: String(value),
    hint: "The higher goes first.",
  });
}

/** A task as a list has it may say its first words alone; a question is answered as it was asked. */
async function whole(task) {
  if (!task.message?.endsWith("…")) return task;
  try {
    return (await get(`/v1/tasks/${task.id}`)).task;
  } catch {
    return task;
  }
}

/**
 * The buttons for a task's record; none for whoever may only read. `done` is called once something is done. Beside an
 * older `run` than the task's last there is nothing that would be done to the last one: nobody is to judge what they do
 * not look at.
 */
export function taskActs(task, done, run = task.last_run) {
  if (!may.submit()) return [];
  return ACTS.filter((one) => one.fits(task) && !(one.ofRun && run !== task.last_run)).map((one) =>
    h(
      "button",
      {
        type: "button",
        class: one.danger ? "danger" : one.primary ? "primary" : null,
        on: { click: async () => act({ ...one.of(await whole(task)), done }) },
      },
      one.name,
    ),
  );
}
