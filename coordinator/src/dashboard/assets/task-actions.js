// Actions on a single task, offered according to its state and the user's role. The coordinator has the final say and
// may still refuse; its message is then shown.

import { can, get, post } from "./api.js";
import { formField, openDialog, showAlert, showNotice } from "./dialogs.js";
import { h } from "./dom.js";
import { singleLine } from "./format.js";
import { isTaskEnded, isUndelivered } from "./components.js";

/** Priorities range from `-PRIORITY_MAX` to `PRIORITY_MAX`. */
export const PRIORITY_MAX = 1000;

const taskPath = (task, verb) => `/v1/tasks/${task.id}/${verb}`;
const shortTitle = (task) => singleLine(task.spec.title || "this task", 80);

/** Opens the dialog of an action, sends its request and shows the outcome; `onDone` is called after success. */
async function runAction({ dialogOptions, request, notice, onDone }) {
  const fields = dialogOptions ? await openDialog(dialogOptions) : {};
  if (fields === null) return;
  try {
    const response = await request(fields);
    showNotice(notice);
    await onDone?.(response);
  } catch (error) {
    showAlert(error.message);
  }
}

const TASK_ACTIONS = [
  {
    name: "Answer",
    primary: true,
    applies: (task) => task.state === "blocked" && !isUndelivered(task) && ["person", "provider", "outage", "budget", "worker_fault"].includes(task.blocked_why),
    describe: (task) => ({
      dialogOptions: {
        title: task.blocked_why === "person" ? "Answer" : "Continue the task",
        body: [
          task.message && h("blockquote", { class: "text", dir: "auto" }, task.message),
          task.blocked_why !== "worker_fault" && formField("Your answer", "text", {
            rows: 5,
            required: task.blocked_why === "person",
            hint: "The run continues with the question and your answer in its prompt.",
          }),
        ],
        submitLabel: task.blocked_why === "worker_fault" ? "Continue" : "Answer",
      },
      request: ({ text = "" }) => post(taskPath(task, "answer"), { text }),
      notice: `Answered: ${shortTitle(task)}`,
    }),
  },
  {
    name: "Complete unverified",
    applies: (task) => task.state === "blocked" && task.blocked_why === "person" && task.unverified,
    describe: (task) => ({
      dialogOptions: {
        title: "Complete as unverified",
        body: h("blockquote", { class: "text", dir: "auto" }, task.unverified),
        submitLabel: "Complete",
      },
      request: () => post(taskPath(task, "answer"), { text: "accept" }),
      notice: `Completed as unverified: ${shortTitle(task)}`,
    }),
  },
  {
    name: "Accept",
    primary: true,
    concernsRun: true,
    applies: (task) => task.last_run && (isUndelivered(task) || task.state === "completed"),
    describe: (task) => ({
      dialogOptions: {
        title: "Accept the result",
        body: formField("Comment", "comment", { rows: 3, hint: isUndelivered(task) ? "Accepting confirms that you settled the delivery by hand." : "Optional. Recorded in the log." }),
        submitLabel: "Accept",
      },
      request: ({ comment }) => post(`/v1/runs/${task.last_run}/accept`, { comment }),
      notice: `Accepted: ${shortTitle(task)}`,
    }),
  },
  {
    name: "Reject",
    concernsRun: true,
    applies: (task) => task.last_run && (isUndelivered(task) || task.state === "completed"),
    describe: (task) => ({
      dialogOptions: {
        title: "Reject the result",
        body: formField("Feedback", "comment", { rows: 5, required: true, hint: "A new run continues from this result and receives your feedback." }),
        submitLabel: "Reject",
      },
      request: ({ comment }) => post(`/v1/runs/${task.last_run}/reject`, { comment }),
      notice: `Rejected; a new run continues: ${shortTitle(task)}`,
    }),
  },
  {
    name: "Send message",
    concernsRun: true,
    applies: (task) => task.state === "running" && task.run,
    describe: (task) => ({
      dialogOptions: {
        title: "Send a message to the run",
        body: formField("Message", "text", { rows: 5, required: true, hint: "The model receives it before its next turn." }),
        submitLabel: "Send",
      },
      request: ({ text }) => post(`/v1/runs/${task.run}/tell`, { text }),
      notice: `Message sent: ${shortTitle(task)}`,
    }),
  },
  {
    name: "Pause",
    applies: (task) => !isTaskEnded(task) && task.state !== "blocked",
    describe: (task) => ({ request: () => post(taskPath(task, "pause")), notice: `Paused${task.state === "running" ? " after the current turn" : ""}: ${shortTitle(task)}` }),
  },
  {
    name: "Unpause",
    primary: true,
    applies: (task) => task.state === "blocked" && task.blocked_why === "paused",
    describe: (task) => ({ request: () => post(taskPath(task, "unpause")), notice: `Unpaused: ${shortTitle(task)}` }),
  },
  {
    name: "Retry",
    applies: (task) => ["discarded", "cancelled", "completed", "retryable"].includes(task.state) && !task.forked_from,
    describe: (task) => ({
      dialogOptions: {
        title: task.state === "retryable" ? "Retry now" : "Run again from the start",
        body: [h("p", {}, shortTitle(task)), formField("Reason", "reason", { hint: "Optional. Recorded in the log." })],
        submitLabel: "Retry",
      },
      request: ({ reason }) => post(taskPath(task, "retry"), { reason }),
      notice: `Back in the backlog: ${shortTitle(task)}`,
    }),
  },
  {
    // A fork starts in the middle of another run, so it cannot be retried from the start; it resumes from its last
    // completed turn.
    name: "Resume",
    concernsRun: true,
    applies: (task) => task.forked_from && task.last_run && ["discarded", "cancelled"].includes(task.state),
    describe: (task) => ({
      dialogOptions: {
        title: "Resume from the last completed turn",
        body: [h("p", {}, shortTitle(task)), formField("Hint for the model", "hint", { rows: 4, hint: "Optional. A fork cannot be retried from the start. To resume from another turn, open the run." })],
        submitLabel: "Resume",
      },
      request: ({ hint }) => post(`/v1/runs/${task.last_run}/resume`, { hint: hint.trim() || undefined }),
      notice: `Resumed as a new run: ${shortTitle(task)}`,
    }),
  },
  {
    name: "Priority",
    applies: (task) => !isTaskEnded(task),
    describe: (task) => ({
      dialogOptions: {
        title: "Change priority",
        body: priorityField(task.spec.priority ?? 0),
        submitLabel: "Set",
      },
      request: async ({ priority }) => {
        const response = await post("/v1/tasks/bulk", { act: { reprioritize: Number(priority) }, tasks: [task.id] });
        if (response.tasks[0]?.refused) throw new Error(response.tasks[0].refused);
        return response;
      },
      notice: `Priority changed: ${shortTitle(task)}`,
    }),
  },
  {
    name: "Cancel",
    danger: true,
    applies: (task) => !isTaskEnded(task),
    describe: (task) => ({
      dialogOptions: {
        title: "Cancel this task?",
        body: [
          h("p", {}, shortTitle(task)),
          task.state === "running" && h("p", {}, "The task is running. Its run will be stopped; everything it did stays in the log."),
          formField("Reason", "reason", { hint: "Optional. Recorded in the log." }),
        ],
        submitLabel: "Cancel task",
        danger: true,
        closeLabel: "Keep task",
      },
      request: ({ reason }) => post(taskPath(task, "cancel"), { reason }),
      notice: `Cancelled: ${shortTitle(task)}`,
    }),
  },
];

export function priorityField(value = 0) {
  return formField("Priority", "priority", {
    type: "number",
    min: -PRIORITY_MAX,
    max: PRIORITY_MAX,
    step: 1,
    required: true,
    value: String(value),
    hint: "Tasks with a higher priority run first.",
  });
}

/** Loads the full message of a task whose message a list truncated, so that the dialog shows the complete question. */
async function withFullMessage(task) {
  if (!task.message?.endsWith("…")) return task;
  try {
    return (await get(`/v1/tasks/${task.id}`)).task;
  } catch {
    return task;
  }
}

/**
 * The action buttons of a task; none for read-only users. `onDone` is called after an action. On the page of an older
 * `run`, actions that concern the last run are left out, so that users only judge the result they are looking at.
 */
export function taskActionButtons(task, onDone, run = task.last_run) {
  if (!can.submit()) return [];
  return TASK_ACTIONS.filter((action) => action.applies(task) && !(action.concernsRun && run !== task.last_run)).map((action) =>
    h(
      "button",
      {
        type: "button",
        class: action.danger ? "danger" : action.primary ? "primary" : null,
        on: { click: async () => runAction({ ...action.describe(await withFullMessage(task)), onDone }) },
      },
      action.name,
    ),
  );
}
